# The driver table, the software driver and the misuse table.
set(software_fixture ${CMAKE_SOURCE_DIR}/tests/unit/gpu/software_fixture.c)

st_test(unit/gpu/faults USES gpu/driver base)
foreach(name memory work multicast options)
  st_test(unit/gpu/software_${name} SOURCES ${software_fixture} USES gpu/software base)
  target_link_options(test_unit_gpu_software_${name} PRIVATE -Wl,--wrap=gpu_twin_find)
endforeach()

st_test(contract/gpu/misuse
  SOURCES ${CMAKE_SOURCE_DIR}/tests/contract/gpu/misuse.c ${software_fixture}
  USES gpu/software base)
target_link_options(test_contract_gpu_misuse PRIVATE -Wl,--wrap=gpu_twin_find)

# The same rows on a real device.
st_test(gpu/misuse_cuda TIMEOUT 600
  SOURCES ${CMAKE_SOURCE_DIR}/tests/contract/gpu/misuse.c support/cuda_there.c
  USES gpu/cuda gpu/driver base)

# Where a real cuda.h is installed, our own types are compared with it.
find_path(CUDA_H_DIR cuda.h PATHS /usr/local/cuda/include)
if(NOT CUDA_H_DIR)
  set(CUDA_H_DIR "")
endif()
add_test(NAME lint/cuda_types
  COMMAND ${CMAKE_SOURCE_DIR}/tests/lint/cuda_types.sh ${CMAKE_C_COMPILER} ${CMAKE_SOURCE_DIR}
          "${CUDA_H_DIR}")
set_tests_properties(lint/cuda_types PROPERTIES SKIP_RETURN_CODE 77 TIMEOUT 120)
