# The lints read the source tree only; lint/selftest shows that each of them can fail.
find_package(Python3 REQUIRED COMPONENTS Interpreter)

foreach(name include_direction functions words)
  add_test(NAME lint/${name}
           COMMAND Python3::Interpreter ${CMAKE_SOURCE_DIR}/tests/lint/${name}.py ${CMAKE_SOURCE_DIR})
endforeach()
add_test(NAME lint/format COMMAND ${CMAKE_SOURCE_DIR}/tests/lint/format.sh ${CMAKE_SOURCE_DIR})
add_test(NAME lint/selftest COMMAND Python3::Interpreter ${CMAKE_SOURCE_DIR}/tests/lint/selftest.py)
foreach(name include_direction functions words format selftest)
  set_tests_properties(lint/${name} PROPERTIES TIMEOUT 120 SKIP_RETURN_CODE 77 LABELS lint)
endforeach()
