# The image of the CUDA kernels. With nvcc it is built; without, the committed PTX is unpacked.

set(SYMTENSOR_NVCC "" CACHE STRING "nvcc for the CUDA kernels; empty: look for one; OFF: use the committed PTX")
set(SYMTENSOR_NVCC_FLAGS "" CACHE STRING "More flags for nvcc, to compare variants of the kernels")

# nvcc, when it is there and new enough for our sources (12.8 knows sm_100); its version as "13.0.88".
set(st_nvcc "")
set(st_nvcc_version "")
if(SYMTENSOR_NVCC STREQUAL "")
  find_program(SYMTENSOR_NVCC_FOUND nvcc HINTS /usr/local/cuda/bin)
  set(st_nvcc_candidate "${SYMTENSOR_NVCC_FOUND}")
else()
  set(st_nvcc_candidate "${SYMTENSOR_NVCC}")
endif()
if(st_nvcc_candidate)
  execute_process(COMMAND ${st_nvcc_candidate} --version OUTPUT_VARIABLE st_nvcc_text
                  ERROR_QUIET RESULT_VARIABLE st_nvcc_result)
  if(st_nvcc_result EQUAL 0 AND st_nvcc_text MATCHES "V([0-9]+\\.[0-9]+\\.[0-9]+)")
    set(st_nvcc_version ${CMAKE_MATCH_1})
  endif()
  if(st_nvcc_version VERSION_GREATER_EQUAL 12.8)
    set(st_nvcc ${st_nvcc_candidate})
    message(STATUS "CUDA kernels: nvcc ${st_nvcc_version}")
  endif()
endif()
if(NOT st_nvcc)
  message(STATUS "CUDA kernels: the committed PTX")
endif()

# st_kernel_image(OUTPUT SOURCE [DEPENDS...]): commands that make the image, and with nvcc the target
# pack_kernels, which renews the committed PTX after a change of the sources.
function(st_kernel_image output source)
  set(script ${CMAKE_SOURCE_DIR}/cmake/nvcc.sh)
  set(packed ${CMAKE_CURRENT_SOURCE_DIR}/kernels/ptx/kernels.tar.gz)
  if(st_nvcc)
    separate_arguments(extra UNIX_COMMAND "${SYMTENSOR_NVCC_FLAGS}")
    add_custom_command(OUTPUT ${output}
      COMMAND ${script} ${st_nvcc} ${CMAKE_SOURCE_DIR} ${source} ${output} all ${extra}
      DEPENDS ${ARGN} ${source} ${script} VERBATIM
      COMMENT "Compiling the CUDA kernels")
    add_custom_target(pack_kernels
      COMMAND ${script} ${st_nvcc} ${CMAKE_SOURCE_DIR} ${source} ${packed} pack
      VERBATIM COMMENT "Packing the PTX of the CUDA kernels")
  else()
    get_filename_component(folder ${output} DIRECTORY)
    get_filename_component(name ${output} NAME)
    add_custom_command(OUTPUT ${output}
      COMMAND ${CMAKE_COMMAND} -E tar xf ${packed}
      COMMAND ${CMAKE_COMMAND} -E touch ${name}
      WORKING_DIRECTORY ${folder}
      DEPENDS ${packed} VERBATIM
      COMMENT "Unpacking the committed PTX of the CUDA kernels")
  endif()
endfunction()
