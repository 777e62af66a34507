st_test(unit/server/order USES server)
st_test(unit/server/operation SOURCES unit/server/node_fixture.c USES server)
