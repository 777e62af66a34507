foreach(name shapes planner digest)
  st_test(unit/server/${name} USES server)
endforeach()
st_program(latency_bench SOURCES bench/latency_bench.c bench/bench_node.c USES server gpu base)
