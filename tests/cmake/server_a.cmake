st_test(unit/server/order USES server)
st_test(unit/server/operation SOURCES unit/server/node_fixture.c USES server)
foreach(name registry failure hold)
  st_test(unit/server/${name} TIMEOUT 600
    SOURCES unit/server/node_fixture.c unit/server/registry_fixture.c USES server)
endforeach()
