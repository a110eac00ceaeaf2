# lua/deja.lua becomes the string deja_lua_library of the cache room: the Functions travel inside the executable, and the file
# itself stays loadable with redis-cli. Escaped at build time, so that a change of the file rebuilds the string.
set(lua_source "${CMAKE_SOURCE_DIR}/lua/deja.lua")
set(lua_made "${CMAKE_BINARY_DIR}/deja_lua_library.c")
add_custom_command(
    OUTPUT "${lua_made}"
    COMMAND ${CMAKE_COMMAND} -DIN=${lua_source} -DOUT=${lua_made} -P "${CMAKE_SOURCE_DIR}/cmake/lua_to_c.cmake"
    DEPENDS "${lua_source}" "${CMAKE_SOURCE_DIR}/cmake/lua_to_c.cmake"
    VERBATIM)
target_sources(deja_cache PRIVATE "${lua_made}")
