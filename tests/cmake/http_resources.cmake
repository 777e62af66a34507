foreach(name data_headers data_npy data_range page_token view)
  st_test(unit/api/${name} USES api)
endforeach()

# The real server, driven by curl and jq. Several wait for bodies that stall for 10 s.
foreach(name contents data lists node npy operations reports tensors verbs)
  add_test(NAME http/${name} COMMAND ${CMAKE_SOURCE_DIR}/tests/http/${name}_test.sh)
  set_tests_properties(http/${name} PROPERTIES TIMEOUT 180 SKIP_RETURN_CODE 77 LABELS http
                       ENVIRONMENT "SYMTENSORD=$<TARGET_FILE:symtensord>")
endforeach()
