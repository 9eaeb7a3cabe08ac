# How every folder of src/ becomes one target, and how its tests are registered.

# Applied to every target of the project. Warnings are errors with the compiler that releases use.
# -ffp-contract=off: a fused multiply-add happens only where the source says fma (design section 4).
function(drafthouse_compile_options target)
  target_compile_options(${target} PRIVATE
    -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wno-sign-conversion
    $<$<CXX_COMPILER_ID:GNU>:-Werror>
    -ffp-contract=off -fno-math-errno)
  if(DRAFTHOUSE_SANITIZE)
    # GCC 12 finds its own intrinsics uninitialised when sanitizers keep it from inlining them.
    target_compile_options(${target} PRIVATE -fsanitize=${DRAFTHOUSE_SANITIZE} -fno-omit-frame-pointer
      -fno-sanitize-recover=all $<$<BOOL:${DRAFTHOUSE_FUZZ}>:-fsanitize=fuzzer-no-link>
      $<$<CXX_COMPILER_ID:GNU>:-Wno-uninitialized> $<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized>)
    target_link_options(${target} PRIVATE -fsanitize=${DRAFTHOUSE_SANITIZE})
  endif()
endfunction()

# drafthouse_library(base SOURCES a.cc b.cc DEPS tensor fmt::fmt)
# Makes the target dh_base. DEPS named without "::" are folders of this project.
function(drafthouse_library name)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPS" ${ARGN})
  add_library(dh_${name} STATIC ${ARG_SOURCES})
  target_include_directories(dh_${name} PUBLIC ${CMAKE_SOURCE_DIR}/src ${CMAKE_SOURCE_DIR}/include)
  drafthouse_compile_options(dh_${name})
  foreach(dep ${ARG_DEPS})
    if(dep MATCHES "::")
      target_link_libraries(dh_${name} PUBLIC ${dep})
    else()
      target_link_libraries(dh_${name} PUBLIC dh_${dep})
    endif()
  endforeach()
endfunction()

# drafthouse_test(page_pool SOURCES page_pool_test.cc DEPS cache LABELS quick)
# One GoogleTest binary, one ctest entry. LABELS: quick (default) or slow.
function(drafthouse_test name)
  if(NOT DRAFTHOUSE_TESTS)
    return()
  endif()
  cmake_parse_arguments(ARG "" "TIMEOUT" "SOURCES;DEPS;LABELS" ${ARGN})
  add_executable(${name}_test ${ARG_SOURCES})
  drafthouse_compile_options(${name}_test)
  foreach(dep ${ARG_DEPS})
    if(dep MATCHES "::")
      target_link_libraries(${name}_test PRIVATE ${dep})
    else()
      target_link_libraries(${name}_test PRIVATE dh_${dep})
    endif()
  endforeach()
  target_include_directories(${name}_test PRIVATE ${CMAKE_SOURCE_DIR})
  target_link_libraries(${name}_test PRIVATE GTest::gtest GTest::gtest_main)
  add_test(NAME ${name} COMMAND ${name}_test WORKING_DIRECTORY ${CMAKE_SOURCE_DIR})
  if(NOT ARG_LABELS)
    set(ARG_LABELS quick)
  endif()
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 600)
  endif()
  # ctest starts the tests with the highest cost first: quick ones tell soonest that all is broken.
  set(cost 100)
  if(NOT "quick" IN_LIST ARG_LABELS)
    set(cost 50)
  endif()
  set_tests_properties(${name} PROPERTIES
    LABELS "${ARG_LABELS}" TIMEOUT ${ARG_TIMEOUT} COST ${cost})
endfunction()

# drafthouse_fuzz(gguf SOURCES gguf_fuzz.cc DEPS formats)
# One libFuzzer binary, fuzz_gguf, in builds with DRAFTHOUSE_FUZZ (the preset "fuzz"); list it in
# tests/sanitized.txt to have it run.
function(drafthouse_fuzz name)
  if(NOT DRAFTHOUSE_FUZZ)
    return()
  endif()
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPS" ${ARGN})
  add_executable(fuzz_${name} ${ARG_SOURCES})
  drafthouse_compile_options(fuzz_${name})
  target_compile_options(fuzz_${name} PRIVATE -fsanitize=fuzzer)
  target_link_options(fuzz_${name} PRIVATE -fsanitize=fuzzer)
  foreach(dep ${ARG_DEPS})
    target_link_libraries(fuzz_${name} PRIVATE dh_${dep})
  endforeach()
endfunction()
