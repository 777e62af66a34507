foreach(name field http_text options router)
  st_test(unit/api/${name} USES api)
endforeach()

# The real server, over raw sockets. SYMTENSORD_SLOWER stretches deadlines of tests under sanitizers.
set(http_slower 1)
if(SYMTENSOR_SANITIZE)
  set(http_slower 3)
endif()
find_package(Python3 REQUIRED COMPONENTS Interpreter)
foreach(name protocol lifecycle limits slow)
  add_test(NAME http/${name}
           COMMAND Python3::Interpreter ${CMAKE_SOURCE_DIR}/tests/http/${name}_test.py)
  set_tests_properties(http/${name} PROPERTIES TIMEOUT 300 LABELS http
    ENVIRONMENT "SYMTENSORD=$<TARGET_FILE:symtensord>;SYMTENSORD_SLOWER=${http_slower}")
endforeach()

st_program(bare_mhd SOURCES bench/bare_mhd.c USES PkgConfig::MICROHTTPD)
