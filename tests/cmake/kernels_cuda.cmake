# The CUDA kernels: against their twins and timed on a real device, their code without one.
add_library(st_kernels_device STATIC gpu/kernels_device.c)
target_link_libraries(st_kernels_device PUBLIC st_flags st_gpu_cuda st_gpu_kernels_cuda st_gpu_kernels
                      st_base)

# Without cmocka: a machine with a device need not have it.
st_program(test_gpu_kernels_cuda SOURCES gpu/kernels_cuda_test.c ${CMAKE_SOURCE_DIR}/tests/support/reduce_reference.c
  USES kernels_device)
target_link_libraries(test_gpu_kernels_cuda PRIVATE m)
add_test(NAME gpu/kernels_cuda COMMAND test_gpu_kernels_cuda)
set_tests_properties(gpu/kernels_cuda PROPERTIES SKIP_RETURN_CODE 77 TIMEOUT 600)
st_program(kernels_bench SOURCES gpu/kernels_bench.c USES kernels_device)

add_test(NAME lint/kernels
  COMMAND ${CMAKE_SOURCE_DIR}/tests/lint/kernels.sh "${st_nvcc}" ${CMAKE_SOURCE_DIR}
          $<TARGET_FILE_DIR:test_gpu_kernels_cuda>/../gpu/kernels.fatbin)
set_tests_properties(lint/kernels PROPERTIES SKIP_RETURN_CODE 77 TIMEOUT 600 LABELS lint)
