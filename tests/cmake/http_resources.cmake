foreach(name data_range data_npy data_headers page_token view)
  st_test(unit/api/${name} USES api)
endforeach()
