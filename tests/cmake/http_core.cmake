foreach(name field http_text options router)
  st_test(unit/api/${name} USES api)
endforeach()
