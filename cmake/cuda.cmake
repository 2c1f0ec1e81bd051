# The CUDA device by nvcc: included where a compiler was found and is wanted (WITH_CUDA). Defines spillway_cuda_target(<target>) for
# what holds .cu files. ptxas' report on every kernel lands beside its object, for tests/cuda/registers.
set(CMAKE_CUDA_COMPILER ${NVCC})
if(NOT CMAKE_CUDA_ARCHITECTURES)
    # A100, L40S and the like, H100 and H200, B200, RTX 50; what is shipped also runs, by its PTX, on what comes later
    set(CMAKE_CUDA_ARCHITECTURES 80-real 89-real 90a-real 100-real 120-real)
    if(CMAKE_BUILD_TYPE STREQUAL "Release")
        set(CMAKE_CUDA_ARCHITECTURES 80-real 89-real 90a-real 100 120)
    endif()
endif()
set(CMAKE_CUDA_FLAGS_DEV "-O3 --threads 3") # architectures side by side: one file takes as long as all others
set(CMAKE_CUDA_FLAGS_RELEASE "${CMAKE_CUDA_FLAGS_DEV}")
if(SPILLWAY_DEBUG GREATER 1)
    string(APPEND CMAKE_CUDA_FLAGS_DEV " -lineinfo") # lines are half of what a kernel takes
endif()
set(CMAKE_CUDA_STANDARD 17)
set(CMAKE_CUDA_STANDARD_REQUIRED ON)
set(CMAKE_CUDA_RUNTIME_LIBRARY Static)
enable_language(CUDA)
if(CMAKE_CUDA_COMPILER_VERSION VERSION_GREATER_EQUAL 12.8)
    # A fifth of the bytes to carry; the driver unpacks a file's kernels when the first of them is used.
    string(APPEND CMAKE_CUDA_FLAGS " --compress-mode=size")
endif()
find_package(CUDAToolkit REQUIRED)
set(CMAKE_CUDA_COMPILER_LAUNCHER ${CMAKE_SOURCE_DIR}/cmake/ptxas_log)
if(CCACHE)
    # By what the files hold (depend mode): the preprocessor that ccache asks else defines no __CUDA_ARCH__, and a change below
    # `#if __CUDA_ARCH__` alone would get the object of before.
    list(APPEND CMAKE_CUDA_COMPILER_LAUNCHER env CCACHE_DEPEND=1 ${CCACHE})
endif()

function(spillway_cuda_target target)
    target_compile_options(${target} PRIVATE "$<$<COMPILE_LANGUAGE:CUDA>:-Xptxas=-v>" "$<$<COMPILE_LANGUAGE:CUDA>:-Xcompiler=-Wall>")
    if(SPILLWAY_WERROR)
        target_compile_options(${target} PRIVATE "$<$<COMPILE_LANGUAGE:CUDA>:-Werror=all-warnings>")
    endif()
    target_include_directories(${target} SYSTEM PUBLIC ${CUDAToolkit_INCLUDE_DIRS})
endfunction()
