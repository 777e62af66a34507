add_test(NAME http/cli COMMAND bash ${CMAKE_SOURCE_DIR}/tests/http/cli_test.sh)
set_tests_properties(http/cli PROPERTIES TIMEOUT 60 ENVIRONMENT
  "SYMTENSORD=$<TARGET_FILE:symtensord>;SYMTENSOR=$<TARGET_FILE:symtensor>")
