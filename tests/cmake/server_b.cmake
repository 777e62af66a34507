foreach(name shapes planner digest)
  st_test(unit/server/${name} USES server)
endforeach()
st_test(unit/server/collective TIMEOUT 600
  SOURCES unit/server/node_fixture.c unit/server/collective_reference.c USES server)
foreach(name transfer verbs mixed data_failure bounds blocking)
  st_test(unit/server/${name} TIMEOUT 600 SOURCES unit/server/node_fixture.c USES server)
endforeach()
st_program(latency_bench SOURCES bench/latency_bench.c bench/bench_node.c USES server gpu base)
