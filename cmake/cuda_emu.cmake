# The CUDA sources compiled by the C++ compiler on tests/cuda_emu, so that their logic runs on the CPU under the sanitizers: the library
# deja_cuda_emu, a benchmark; with DEJA_TESTS one test program a file of tests/unit/cuda, and the emulation's own tests.
file(GLOB emu_srcs CONFIGURE_DEPENDS "${CMAKE_SOURCE_DIR}/engine/backend/cuda/*.cu")
set_source_files_properties(${emu_srcs} PROPERTIES LANGUAGE CXX COMPILE_OPTIONS "-xc++;-Wno-unknown-pragmas")
file(GLOB emu_c CONFIGURE_DEPENDS "${CMAKE_SOURCE_DIR}/engine/backend/cuda/*.c")
add_library(deja_cuda_emu STATIC EXCLUDE_FROM_ALL ${emu_srcs} ${emu_c} tests/cuda_emu/emu.cpp tests/cuda_emu/emu_warp.cpp tests/cuda_emu/emu_tma.cpp tests/cuda_emu/runtime.cpp tests/cuda_emu/runtime_device.cpp tests/cuda_emu/lt_host.cpp tests/cuda_emu/nccl_host.cpp)
target_include_directories(deja_cuda_emu BEFORE PUBLIC "${CMAKE_SOURCE_DIR}/tests/cuda_emu/include" "${CMAKE_SOURCE_DIR}")
target_link_libraries(deja_cuda_emu PUBLIC deja_backend deja_base)
# a fake stack for each fiber makes the sanitizer ten times slower and finds nothing here
if(DEJA_SANITIZE MATCHES "address")
    target_compile_options(deja_cuda_emu PUBLIC "$<$<AND:$<COMPILE_LANGUAGE:CXX>,$<CXX_COMPILER_ID:GNU>>:--param=asan-use-after-return=0>"
                           "$<$<AND:$<COMPILE_LANGUAGE:CXX>,$<CXX_COMPILER_ID:Clang>>:-fsanitize-address-use-after-return=never>")
endif()
# the host's share of a GPU step, in emulation
add_executable(bench_step EXCLUDE_FROM_ALL bench/bench_step.c)
target_link_libraries(bench_step PRIVATE deja_cuda_emu deja_engine)
if(NOT DEJA_TESTS)
    return()
endif()
file(GLOB srcs CONFIGURE_DEPENDS "tests/unit/cuda/test_*.cpp")
foreach(s ${srcs} "${CMAKE_SOURCE_DIR}/tests/cuda_emu/test_emu.cpp" "${CMAKE_SOURCE_DIR}/tests/cuda_emu/test_emu_tma.cpp")
    get_filename_component(n ${s} NAME_WE)
    add_executable(unit_cuda_${n} ${s})
    set_target_properties(unit_cuda_${n} PROPERTIES RUNTIME_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/unit")
    target_link_libraries(unit_cuda_${n} PRIVATE deja_cuda_emu deja_engine)
    target_compile_definitions(unit_cuda_${n} PRIVATE "SOURCE_DIR=\"${CMAKE_SOURCE_DIR}\"")
    add_test(NAME cuda/${n} COMMAND unit_cuda_${n})
    add_dependencies(unit_tests unit_cuda_${n})
endforeach()
# the whole program with an emulated GPU, for tests/integration/test_device.py: `deja_emu engine --device cuda`
add_executable(deja_emu deja.c)
target_compile_definitions(deja_emu PRIVATE DEJA_DEVICE=cuda_device)
target_link_libraries(deja_emu PRIVATE deja_cuda_emu ${ALL_ROOMS})
# what rounding the products of long prompts costs, without a GPU
add_executable(bench_products EXCLUDE_FROM_ALL bench/bench_products.cpp)
target_link_libraries(bench_products PRIVATE deja_cuda_emu deja_model deja_text)
