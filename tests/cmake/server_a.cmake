st_test(unit/server/order USES server)
st_test(unit/server/operation SOURCES unit/server/node_fixture.c USES server)
st_test(unit/server/failure TIMEOUT 600
  SOURCES unit/server/node_fixture.c unit/server/registry_fixture.c USES server)
