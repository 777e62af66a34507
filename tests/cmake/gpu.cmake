# gpu/ above the driver table: collectives as lists of movements, then all of gpu/gpu.h over the software
# driver.
set(collective_meaning ${CMAKE_SOURCE_DIR}/tests/contract/gpu/collective_meaning.c)
set(gpu_rig ${CMAKE_SOURCE_DIR}/tests/contract/gpu/rig.c)
set(reduce_reference ${CMAKE_SOURCE_DIR}/tests/support/reduce_reference.c)

st_test(unit/gpu/collectives SOURCES ${collective_meaning} USES gpu)
st_test(unit/gpu/algorithms USES gpu)
st_test(unit/gpu/ranges USES gpu)
st_test(contract/gpu/collectives SOURCES ${gpu_rig} ${collective_meaning} ${reduce_reference} USES gpu
        TIMEOUT 300)
add_test(NAME contract/gpu/collectives_replayed COMMAND test_contract_gpu_collectives)
set_tests_properties(contract/gpu/collectives_replayed PROPERTIES TIMEOUT 300
  ENVIRONMENT SYMTENSOR_TEST_GRAPHS=on)
st_test(contract/gpu/graph SOURCES ${gpu_rig} USES gpu)
st_test(contract/gpu/memory SOURCES ${gpu_rig} USES gpu)
st_test(contract/gpu/multicast SOURCES ${gpu_rig} USES gpu)
target_link_options(test_contract_gpu_multicast PRIVATE -Wl,--wrap=gpu_device_launch)
st_test(contract/gpu/work SOURCES ${gpu_rig} USES gpu)
