# Sources that are built once per instruction set, each copy in the namespace drafthouse::<isa>.
# Nothing else of the project is built with instruction set flags.

set(kernel_isas generic)
if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|amd64|AMD64)$")
  list(APPEND kernel_isas avx2 avxvnni avx512 avx512bf16)
endif()
set(kernel_flags_avx2 -mavx2 -mfma -mf16c)
set(kernel_flags_avxvnni ${kernel_flags_avx2} -mavxvnni)
set(kernel_flags_avx512
  ${kernel_flags_avx2} -mavx512f -mavx512bw -mavx512vl -mavx512dq -mavx512vnni)
set(kernel_flags_avx512bf16 ${kernel_flags_avx512} -mavx512bf16)

# drafthouse_kernel_isas(kernels cpu/matmul.cc …): adds the objects of every set to dh_kernels, and
# a test that none of them has a weak symbol, which the linker could choose for the whole program.
function(drafthouse_kernel_isas library)
  foreach(isa ${kernel_isas})
    set(target dh_${library}_${isa})
    add_library(${target} OBJECT ${ARGN})
    target_include_directories(${target} PRIVATE ${CMAKE_SOURCE_DIR}/src)
    target_compile_definitions(${target} PRIVATE DRAFTHOUSE_ISA=${isa})
    drafthouse_compile_options(${target})
    # GCC 12 takes the undefined pass-through operands of its own intrinsics for a mistake.
    target_compile_options(${target} PRIVATE ${kernel_flags_${isa}} -Wno-maybe-uninitialized
      -Wno-uninitialized)
    target_sources(dh_${library} PRIVATE $<TARGET_OBJECTS:${target}>)
    if(DRAFTHOUSE_TESTS AND NOT DRAFTHOUSE_SANITIZE)
      add_test(NAME ${library}_${isa}_symbols COMMAND sh -c
        "! ${CMAKE_NM} -A $<JOIN:$<TARGET_OBJECTS:${target}>, > | grep ' [VWu] '")
      set_tests_properties(${library}_${isa}_symbols PROPERTIES LABELS quick)
    endif()
  endforeach()
  list(LENGTH kernel_isas count)
  if(count GREATER 1)
    target_compile_definitions(dh_${library} PRIVATE DRAFTHOUSE_X86=1)
  endif()
endfunction()
