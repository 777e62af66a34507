# The software twins of the kernels, and how fast they are beside bare loops.
set(reduce_reference ${CMAKE_SOURCE_DIR}/tests/support/reduce_reference.c)

st_test(unit/gpu/twins SOURCES ${reduce_reference} USES gpu/kernels base TIMEOUT 300)
st_test(unit/gpu/twins_fill SOURCES ${reduce_reference} USES gpu/kernels base)
st_program(twins_bench SOURCES bench/twins_bench.c bench/bare_loop.c USES gpu/kernels base)
