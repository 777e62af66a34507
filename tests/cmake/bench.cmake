st_program(collectives_bench
  SOURCES bench/collectives_bench.c bench/bench_row.c bench/device_timer.c bench/bench_node.c
          bench/bare_loop.c
  USES server gpu base)
st_program(create_bench SOURCES bench/create_bench.c bench/bench_node.c USES server gpu base)
st_program(wait_bench SOURCES bench/wait_bench.c bench/bench_node.c USES server gpu base)

# Once, with tiny sizes and without peers, so that the benchmark cannot rot. Its times mean nothing.
if(NOT SYMTENSOR_SANITIZE)
  add_test(NAME bench/tiny
    COMMAND python3 ${CMAKE_SOURCE_DIR}/tests/bench/run.py --build ${CMAKE_BINARY_DIR} --tiny --no-peers)
  add_test(NAME bench/tiny_one_device
    COMMAND python3 ${CMAKE_SOURCE_DIR}/tests/bench/run.py --build ${CMAKE_BINARY_DIR} --tiny --no-peers
            --one-device)
  set_tests_properties(bench/tiny bench/tiny_one_device PROPERTIES TIMEOUT 120)
endif()
