# The CUDA driver's table over a library that is not NVIDIA's, so that all of it runs without a device; then
# what needs one (tests/gpu: exit 77 without).
add_library(fake_cuda MODULE support/fake_cuda_library.c)
target_link_libraries(fake_cuda PRIVATE st_flags ${CMAKE_DL_LIBS})
set_target_properties(fake_cuda PROPERTIES PREFIX "" OUTPUT_NAME libcuda SUFFIX .so.1
  LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests/fake_cuda)
set(fake_cuda_environment LD_LIBRARY_PATH=${CMAKE_BINARY_DIR}/tests/fake_cuda)
set(fake_cuda_host ${CMAKE_SOURCE_DIR}/tests/support/fake_cuda.c)

st_test(unit/gpu/cuda SOURCES ${fake_cuda_host} USES gpu ENVIRONMENT ${fake_cuda_environment})
set_target_properties(test_unit_gpu_cuda PROPERTIES ENABLE_EXPORTS ON)
add_dependencies(test_unit_gpu_cuda fake_cuda)

# The contract suites as on a machine with one device, where ranks share it. The test's programs are those of
# tests/cmake/gpu.cmake.
foreach(name collectives memory work)
  target_sources(test_contract_gpu_${name} PRIVATE ${fake_cuda_host})
  set_target_properties(test_contract_gpu_${name} PROPERTIES ENABLE_EXPORTS ON)
  add_dependencies(test_contract_gpu_${name} fake_cuda)
  add_test(NAME contract/gpu/${name}_one_device COMMAND test_contract_gpu_${name})
  set_tests_properties(contract/gpu/${name}_one_device PROPERTIES TIMEOUT 300
    ENVIRONMENT "SYMTENSOR_TEST_DRIVER=cuda;${fake_cuda_environment}")
endforeach()

# On a real device, and here over the fake driver.
foreach(name export lost_device soak)
  st_test(gpu/${name} SOURCES ${CMAKE_SOURCE_DIR}/tests/contract/gpu/rig.c support/cuda_there.c
          ${fake_cuda_host} USES gpu TIMEOUT 600)
  set_target_properties(test_gpu_${name} PROPERTIES ENABLE_EXPORTS ON)
  add_dependencies(test_gpu_${name} fake_cuda)
  add_test(NAME gpu/${name}_fake COMMAND test_gpu_${name})
  set_tests_properties(gpu/${name}_fake PROPERTIES TIMEOUT 120
    ENVIRONMENT "SYMTENSOR_TEST_SOAK_SECONDS=3;${fake_cuda_environment}")
endforeach()
