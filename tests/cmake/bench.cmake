st_program(collectives_bench
  SOURCES bench/collectives_bench.c bench/bench_node.c bench/bare_loop.c
  USES server gpu base)
