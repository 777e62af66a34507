# Flags that every target shares. SYMTENSOR_SANITIZE is a preset's business (see CMakePresets.json).
set(CMAKE_C_STANDARD 17)
set(CMAKE_C_STANDARD_REQUIRED ON)
set(CMAKE_C_EXTENSIONS ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)

option(SYMTENSOR_WERROR "Treat warnings as errors" ON)
set(SYMTENSOR_SANITIZE "" CACHE STRING "Value of -fsanitize=, or empty")

add_library(st_flags INTERFACE)
target_include_directories(st_flags INTERFACE ${CMAKE_SOURCE_DIR})
target_compile_definitions(st_flags INTERFACE _GNU_SOURCE SYMTENSOR_VERSION="${PROJECT_VERSION}")
target_compile_options(st_flags INTERFACE
  -Wall -Wextra -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wold-style-definition -Wvla
  -Wpointer-arith -Wcast-qual -Wwrite-strings -Wformat=2 -Wundef -Wimplicit-fallthrough
  -fno-common -fvisibility=hidden -ffp-contract=off -fstack-protector-strong)
if(SYMTENSOR_WERROR)
  target_compile_options(st_flags INTERFACE -Werror)
endif()
if(SYMTENSOR_SANITIZE)
  target_compile_options(st_flags INTERFACE -fsanitize=${SYMTENSOR_SANITIZE} -fno-omit-frame-pointer
                         -fno-sanitize-recover=all)
  target_link_options(st_flags INTERFACE -fsanitize=${SYMTENSOR_SANITIZE})
endif()
if(NOT CMAKE_BUILD_TYPE STREQUAL "Debug" AND NOT SYMTENSOR_SANITIZE)
  target_compile_definitions(st_flags INTERFACE _FORTIFY_SOURCE=2)
endif()
