# What ctest runs besides the test binaries of this build. Costs: see drafthouse_test.

function(drafthouse_check name label cost timeout)
  set_tests_properties(${name} PROPERTIES LABELS ${label} COST ${cost} TIMEOUT ${timeout}
    WORKING_DIRECTORY ${CMAKE_SOURCE_DIR})
endfunction()

foreach(check check_layers check_size)
  add_test(NAME ${check} COMMAND ${CMAKE_SOURCE_DIR}/tools/${check})
  add_test(NAME ${check}_self_test COMMAND ${CMAKE_SOURCE_DIR}/tools/${check} --self-test)
  drafthouse_check(${check} quick 200 60)
  drafthouse_check(${check}_self_test quick 200 60)
endforeach()

# The runs of tests/sanitized.txt, from builds of their own. Only `ctest -C all` has them (./test
# uses it, having made those builds).
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS
  ${CMAKE_SOURCE_DIR}/tests/sanitized.txt)
file(STRINGS ${CMAKE_SOURCE_DIR}/tests/sanitized.txt lines REGEX "^[a-z]")
foreach(line ${lines})
  separate_arguments(words UNIX_COMMAND "${line}")
  list(POP_FRONT words kind name)
  add_test(NAME ${kind}.${name} CONFIGURATIONS all
    COMMAND ${CMAKE_SOURCE_DIR}/tools/run_sanitized ${kind} ${name} ${words})
  drafthouse_check(${kind}.${name} sanitize 20 1200)
endforeach()
