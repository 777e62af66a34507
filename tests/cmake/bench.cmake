st_program(collectives_bench
  SOURCES bench/collectives_bench.c bench/bench_node.c bench/bare_loop.c
  USES server gpu base)

# Once, with tiny sizes and without peers, so that the benchmark cannot rot. Its times mean nothing.
if(NOT SYMTENSOR_SANITIZE)
  add_test(NAME bench/tiny
    COMMAND python3 ${CMAKE_SOURCE_DIR}/tests/bench/run.py --build ${CMAKE_BINARY_DIR} --tiny --no-peers)
  set_tests_properties(bench/tiny PROPERTIES TIMEOUT 120)
endif()
