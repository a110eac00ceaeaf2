# lua/*.lua become the string deja_lua_library of the cache room: the Functions travel inside the executable. deja.lua comes first (its
# head names the library, its helpers are there for all), the others follow by name; `cat` in that order is what redis-cli can load.
# Escaped at build time, so that a change of a file rebuilds the string.
file(GLOB lua_parts CONFIGURE_DEPENDS "${CMAKE_SOURCE_DIR}/lua/*.lua")
set(lua_first "${CMAKE_SOURCE_DIR}/lua/deja.lua")
list(REMOVE_ITEM lua_parts "${lua_first}")
list(SORT lua_parts)
list(PREPEND lua_parts "${lua_first}")
set(lua_made "${CMAKE_BINARY_DIR}/deja_lua_library.c")
add_custom_command(
    OUTPUT "${lua_made}"
    COMMAND ${CMAKE_COMMAND} "-DIN=${lua_parts}" -DOUT=${lua_made} -P "${CMAKE_SOURCE_DIR}/cmake/lua_to_c.cmake"
    DEPENDS ${lua_parts} "${CMAKE_SOURCE_DIR}/cmake/lua_to_c.cmake"
    VERBATIM)
target_sources(deja_cache PRIVATE "${lua_made}")
