# libFuzzer targets; tests/fuzz/run.sh builds and runs them.
option(SYMTENSOR_FUZZ "Build the fuzz targets (clang only)" OFF)
if(SYMTENSOR_FUZZ)
  foreach(name tensor_create npy range router query)
    st_program(fuzz_${name} SOURCES fuzz/${name}_fuzz.c USES api)
    target_link_options(fuzz_${name} PRIVATE -fsanitize=fuzzer)
    # The sanitizers' runtime finds the function by its name.
    target_compile_options(fuzz_${name} PRIVATE -fvisibility=default)
  endforeach()
endif()
