# cmake "-DIN=a.lua;b.lua" -DOUT=file.c -P lua_to_c.cmake: the files' text, one after the other, as a C string.
set(hex "")
foreach(part ${IN})
    file(READ "${part}" more HEX)
    string(APPEND hex "${more}")
endforeach()
string(LENGTH "${hex}" n)
math(EXPR n "${n} / 2")
string(REGEX REPLACE "(................................)" "\\1\n" hex "${hex}")
string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," hex "${hex}")
file(WRITE "${OUT}" "/* made from ${IN} */\nextern const char deja_lua_library[];\nextern const unsigned deja_lua_library_bytes;\n"
    "const unsigned deja_lua_library_bytes = ${n};\nconst char deja_lua_library[] = {\n${hex}0};\n")
