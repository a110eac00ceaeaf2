# FAISS: the static library, with its scalar inner product made weak in a copy so that embeddings/faiss_distance.cpp replaces it.
# A libfaiss_c that has the C symbols is used as it is.
find_library(FAISS_C_LIB faiss_c)
find_library(FAISS_STATIC_LIB NAMES libfaiss.a REQUIRED)
find_path(FAISS_INCLUDE faiss/c_api/Index_c.h REQUIRED)
find_program(OBJCOPY objcopy REQUIRED)
set(weak "${CMAKE_BINARY_DIR}/libfaiss_weak.a")
add_custom_command(OUTPUT "${weak}"
    COMMAND ${OBJCOPY} --weaken-symbol=_ZN5faiss18fvec_inner_productEPKfS1_m "${FAISS_STATIC_LIB}" "${weak}"
    DEPENDS "${FAISS_STATIC_LIB}" VERBATIM)
add_custom_target(faiss_weak DEPENDS "${weak}")
find_library(BLAS_LIB NAMES openblas REQUIRED)
find_library(LAPACK_LIB NAMES lapack libopenblas.so REQUIRED)
add_dependencies(deja_embeddings faiss_weak)
target_include_directories(deja_embeddings SYSTEM PRIVATE "${FAISS_INCLUDE}")
target_link_libraries(deja_embeddings PUBLIC "${weak}" "${LAPACK_LIB}" "${BLAS_LIB}" gomp stdc++)
if(FAISS_C_LIB)
    target_compile_definitions(deja_embeddings PRIVATE DEJA_HAVE_FAISS_C=1)
    target_link_libraries(deja_embeddings PUBLIC "${FAISS_C_LIB}")
endif()
