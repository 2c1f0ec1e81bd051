/* cuda_runtime_api: the part of the CUDA runtime that Spillway calls, on emulated devices (cudart.cc).   C17 and C++17.
 * Thread: any. Names, values and meanings as NVIDIA's; see emu.h for what a test may set. */
#pragma once
#include <stddef.h>
#include <stdint.h>
#ifdef __cplusplus
extern "C" {
#endif

#define CUDART_VERSION 13000
#define CUDART_CB

#define EMU_ERRORS(X)                               \
    X(cudaSuccess, 0)                               \
    X(cudaErrorInvalidValue, 1)                     \
    X(cudaErrorMemoryAllocation, 2)                 \
    X(cudaErrorInitializationError, 3)              \
    X(cudaErrorCudartUnloading, 4)                  \
    X(cudaErrorProfilerDisabled, 5)                 \
    X(cudaErrorProfilerNotInitialized, 6)           \
    X(cudaErrorProfilerAlreadyStarted, 7)           \
    X(cudaErrorProfilerAlreadyStopped, 8)           \
    X(cudaErrorInvalidConfiguration, 9)             \
    X(cudaErrorInvalidPitchValue, 12)               \
    X(cudaErrorInvalidSymbol, 13)                   \
    X(cudaErrorInvalidHostPointer, 16)              \
    X(cudaErrorInvalidDevicePointer, 17)            \
    X(cudaErrorInvalidTexture, 18)                  \
    X(cudaErrorInvalidTextureBinding, 19)           \
    X(cudaErrorInvalidChannelDescriptor, 20)        \
    X(cudaErrorInvalidMemcpyDirection, 21)          \
    X(cudaErrorAddressOfConstant, 22)               \
    X(cudaErrorTextureFetchFailed, 23)              \
    X(cudaErrorTextureNotBound, 24)                 \
    X(cudaErrorSynchronizationError, 25)            \
    X(cudaErrorInvalidFilterSetting, 26)            \
    X(cudaErrorInvalidNormSetting, 27)              \
    X(cudaErrorMixedDeviceExecution, 28)            \
    X(cudaErrorNotYetImplemented, 31)               \
    X(cudaErrorMemoryValueTooLarge, 32)             \
    X(cudaErrorStubLibrary, 34)                     \
    X(cudaErrorInsufficientDriver, 35)              \
    X(cudaErrorCallRequiresNewerDriver, 36)         \
    X(cudaErrorInvalidSurface, 37)                  \
    X(cudaErrorDuplicateVariableName, 43)           \
    X(cudaErrorDuplicateTextureName, 44)            \
    X(cudaErrorDuplicateSurfaceName, 45)            \
    X(cudaErrorDevicesUnavailable, 46)              \
    X(cudaErrorIncompatibleDriverContext, 49)       \
    X(cudaErrorMissingConfiguration, 52)            \
    X(cudaErrorPriorLaunchFailure, 53)              \
    X(cudaErrorLaunchMaxDepthExceeded, 65)          \
    X(cudaErrorLaunchFileScopedTex, 66)             \
    X(cudaErrorLaunchFileScopedSurf, 67)            \
    X(cudaErrorSyncDepthExceeded, 68)               \
    X(cudaErrorLaunchPendingCountExceeded, 69)      \
    X(cudaErrorInvalidDeviceFunction, 98)           \
    X(cudaErrorNoDevice, 100)                       \
    X(cudaErrorInvalidDevice, 101)                  \
    X(cudaErrorDeviceNotLicensed, 102)              \
    X(cudaErrorSoftwareValidityNotEstablished, 103) \
    X(cudaErrorStartupFailure, 127)                 \
    X(cudaErrorInvalidKernelImage, 200)             \
    X(cudaErrorDeviceUninitialized, 201)            \
    X(cudaErrorMapBufferObjectFailed, 205)          \
    X(cudaErrorUnmapBufferObjectFailed, 206)        \
    X(cudaErrorArrayIsMapped, 207)                  \
    X(cudaErrorAlreadyMapped, 208)                  \
    X(cudaErrorNoKernelImageForDevice, 209)         \
    X(cudaErrorAlreadyAcquired, 210)                \
    X(cudaErrorNotMapped, 211)                      \
    X(cudaErrorNotMappedAsArray, 212)               \
    X(cudaErrorNotMappedAsPointer, 213)             \
    X(cudaErrorECCUncorrectable, 214)               \
    X(cudaErrorUnsupportedLimit, 215)               \
    X(cudaErrorDeviceAlreadyInUse, 216)             \
    X(cudaErrorPeerAccessUnsupported, 217)          \
    X(cudaErrorInvalidPtx, 218)                     \
    X(cudaErrorInvalidGraphicsContext, 219)         \
    X(cudaErrorNvlinkUncorrectable, 220)            \
    X(cudaErrorJitCompilerNotFound, 221)            \
    X(cudaErrorUnsupportedPtxVersion, 222)          \
    X(cudaErrorJitCompilationDisabled, 223)         \
    X(cudaErrorUnsupportedExecAffinity, 224)        \
    X(cudaErrorUnsupportedDevSideSync, 225)         \
    X(cudaErrorContained, 226)                      \
    X(cudaErrorInvalidSource, 300)                  \
    X(cudaErrorFileNotFound, 301)                   \
    X(cudaErrorSharedObjectSymbolNotFound, 302)     \
    X(cudaErrorSharedObjectInitFailed, 303)         \
    X(cudaErrorOperatingSystem, 304)                \
    X(cudaErrorInvalidResourceHandle, 400)          \
    X(cudaErrorIllegalState, 401)                   \
    X(cudaErrorLossyQuery, 402)                     \
    X(cudaErrorSymbolNotFound, 500)                 \
    X(cudaErrorNotReady, 600)                       \
    X(cudaErrorIllegalAddress, 700)                 \
    X(cudaErrorLaunchOutOfResources, 701)           \
    X(cudaErrorLaunchTimeout, 702)                  \
    X(cudaErrorLaunchIncompatibleTexturing, 703)    \
    X(cudaErrorPeerAccessAlreadyEnabled, 704)       \
    X(cudaErrorPeerAccessNotEnabled, 705)           \
    X(cudaErrorSetOnActiveProcess, 708)             \
    X(cudaErrorContextIsDestroyed, 709)             \
    X(cudaErrorAssert, 710)                         \
    X(cudaErrorTooManyPeers, 711)                   \
    X(cudaErrorHostMemoryAlreadyRegistered, 712)    \
    X(cudaErrorHostMemoryNotRegistered, 713)        \
    X(cudaErrorHardwareStackError, 714)             \
    X(cudaErrorIllegalInstruction, 715)             \
    X(cudaErrorMisalignedAddress, 716)              \
    X(cudaErrorInvalidAddressSpace, 717)            \
    X(cudaErrorInvalidPc, 718)                      \
    X(cudaErrorLaunchFailure, 719)                  \
    X(cudaErrorCooperativeLaunchTooLarge, 720)      \
    X(cudaErrorTensorMemoryLeak, 721)               \
    X(cudaErrorNotPermitted, 800)                   \
    X(cudaErrorNotSupported, 801)                   \
    X(cudaErrorSystemNotReady, 802)                 \
    X(cudaErrorSystemDriverMismatch, 803)           \
    X(cudaErrorCompatNotSupportedOnDevice, 804)     \
    X(cudaErrorMpsConnectionFailed, 805)            \
    X(cudaErrorMpsRpcFailure, 806)                  \
    X(cudaErrorMpsServerNotReady, 807)              \
    X(cudaErrorMpsMaxClientsReached, 808)           \
    X(cudaErrorMpsMaxConnectionsReached, 809)       \
    X(cudaErrorMpsClientTerminated, 810)            \
    X(cudaErrorCdpNotSupported, 811)                \
    X(cudaErrorCdpVersionMismatch, 812)             \
    X(cudaErrorStreamCaptureUnsupported, 900)       \
    X(cudaErrorStreamCaptureInvalidated, 901)       \
    X(cudaErrorStreamCaptureMerge, 902)             \
    X(cudaErrorStreamCaptureUnmatched, 903)         \
    X(cudaErrorStreamCaptureUnjoined, 904)          \
    X(cudaErrorStreamCaptureIsolation, 905)         \
    X(cudaErrorStreamCaptureImplicit, 906)          \
    X(cudaErrorCapturedEvent, 907)                  \
    X(cudaErrorStreamCaptureWrongThread, 908)       \
    X(cudaErrorTimeout, 909)                        \
    X(cudaErrorGraphExecUpdateFailure, 910)         \
    X(cudaErrorExternalDevice, 911)                 \
    X(cudaErrorInvalidClusterSize, 912)             \
    X(cudaErrorFunctionNotLoaded, 913)              \
    X(cudaErrorInvalidResourceType, 914)            \
    X(cudaErrorInvalidResourceConfiguration, 915)   \
    X(cudaErrorUnknown, 999)                        \
    X(cudaErrorApiFailureBase, 10000)
#define EMU_ENUM(name, value) name = value,
typedef enum cudaError { EMU_ERRORS(EMU_ENUM) EMU_ERROR_LAST = 0x7fffffff /* room for EMU_STALL */ } cudaError_t;
#undef EMU_ENUM

typedef struct CUstream_st    *cudaStream_t;
typedef struct CUevent_st     *cudaEvent_t;
typedef struct CUgraph_st     *cudaGraph_t;
typedef struct CUgraphExec_st *cudaGraphExec_t;
typedef struct CUgraphNode_st *cudaGraphNode_t;
typedef void(CUDART_CB *cudaHostFn_t)(void *arg);

#define cudaStreamLegacy    ((cudaStream_t)0x1)
#define cudaStreamPerThread ((cudaStream_t)0x2)

enum cudaMemcpyKind {
    cudaMemcpyHostToHost = 0,
    cudaMemcpyHostToDevice = 1,
    cudaMemcpyDeviceToHost = 2,
    cudaMemcpyDeviceToDevice = 3,
    cudaMemcpyDefault = 4
};
enum { cudaStreamDefault = 0, cudaStreamNonBlocking = 1 };
enum { cudaEventDefault = 0, cudaEventBlockingSync = 1, cudaEventDisableTiming = 2, cudaEventInterprocess = 4 };
enum { cudaEventRecordDefault = 0, cudaEventWaitDefault = 0 };
enum { cudaHostAllocDefault = 0, cudaHostAllocPortable = 1, cudaHostAllocMapped = 2, cudaHostAllocWriteCombined = 4 };
enum {
    cudaHostRegisterDefault = 0,
    cudaHostRegisterPortable = 1,
    cudaHostRegisterMapped = 2,
    cudaHostRegisterReadOnly = 8
};
enum {
    cudaDeviceScheduleAuto = 0,
    cudaDeviceScheduleSpin = 1,
    cudaDeviceScheduleYield = 2,
    cudaDeviceScheduleBlockingSync = 4
};
enum { cudaGraphInstantiateFlagUpload = 2 };
enum cudaStreamCaptureMode {
    cudaStreamCaptureModeGlobal = 0,
    cudaStreamCaptureModeThreadLocal = 1,
    cudaStreamCaptureModeRelaxed = 2
};
enum cudaStreamCaptureStatus {
    cudaStreamCaptureStatusNone = 0,
    cudaStreamCaptureStatusActive = 1,
    cudaStreamCaptureStatusInvalidated = 2
};
enum cudaFuncAttribute {
    cudaFuncAttributeMaxDynamicSharedMemorySize = 8,
    cudaFuncAttributePreferredSharedMemoryCarveout = 9
};
enum cudaMemoryType {
    cudaMemoryTypeUnregistered = 0,
    cudaMemoryTypeHost = 1,
    cudaMemoryTypeDevice = 2,
    cudaMemoryTypeManaged = 3
};
enum cudaLimit { cudaLimitStackSize = 0, cudaLimitPrintfFifoSize = 1, cudaLimitMallocHeapSize = 2 };
enum cudaDeviceAttr {
    cudaDevAttrMaxThreadsPerBlock = 1,
    cudaDevAttrMaxSharedMemoryPerBlock = 8,
    cudaDevAttrWarpSize = 10,
    cudaDevAttrClockRate = 13,
    cudaDevAttrMultiProcessorCount = 16,
    cudaDevAttrKernelExecTimeout = 17,
    cudaDevAttrIntegrated = 18,
    cudaDevAttrComputeMode = 20,
    cudaDevAttrEccEnabled = 32,
    cudaDevAttrMemoryClockRate = 36,
    cudaDevAttrGlobalMemoryBusWidth = 37,
    cudaDevAttrL2CacheSize = 38,
    cudaDevAttrMaxThreadsPerMultiProcessor = 39,
    cudaDevAttrUnifiedAddressing = 41,
    cudaDevAttrComputeCapabilityMajor = 75,
    cudaDevAttrComputeCapabilityMinor = 76,
    cudaDevAttrMaxSharedMemoryPerMultiprocessor = 81,
    cudaDevAttrManagedMemory = 83,
    cudaDevAttrCanUseHostPointerForRegisteredMem = 91,
    cudaDevAttrCooperativeLaunch = 95,
    cudaDevAttrMaxSharedMemoryPerBlockOptin = 97,
    cudaDevAttrHostRegisterSupported = 99,
    cudaDevAttrPageableMemoryAccessUsesHostPageTables = 100
};
enum cudaComputeMode { cudaComputeModeDefault = 0, cudaComputeModeProhibited = 2, cudaComputeModeExclusiveProcess = 3 };

typedef struct CUuuid_st {
    char bytes[16];
} cudaUUID_t;
struct cudaDeviceProp { /* the members that anybody reads; never compare its size */
    char       name[256];
    cudaUUID_t uuid;
    size_t     totalGlobalMem, sharedMemPerBlock, sharedMemPerMultiprocessor, sharedMemPerBlockOptin,
        reservedSharedMemPerBlock;
    int regsPerBlock, warpSize, maxThreadsPerBlock, major, minor, multiProcessorCount, integrated, canMapHostMemory;
    int concurrentKernels, ECCEnabled, pciBusID, pciDeviceID, pciDomainID, asyncEngineCount, unifiedAddressing,
        memoryBusWidth;
    int l2CacheSize, persistingL2CacheMaxSize, maxThreadsPerMultiProcessor, managedMemory, cooperativeLaunch;
    int hostRegisterSupported, maxBlocksPerMultiProcessor;
};
struct cudaPointerAttributes {
    enum cudaMemoryType type;
    int                 device;
    void               *devicePointer, *hostPointer;
};

/* devices */
cudaError_t cudaGetDeviceCount(int *count);
cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *prop, int device);
cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr attr, int device);
cudaError_t cudaDeviceGetPCIBusId(char *id, int len, int device);
cudaError_t cudaSetDevice(int device);
cudaError_t cudaGetDevice(int *device);
cudaError_t cudaSetDeviceFlags(unsigned flags);
cudaError_t cudaDeviceSetLimit(enum cudaLimit limit, size_t value);
cudaError_t cudaDeviceSynchronize(void);
cudaError_t cudaDeviceReset(void);
cudaError_t cudaDeviceCanAccessPeer(int *can, int device, int peer);
enum cudaDeviceP2PAttr { cudaDevP2PAttrNativeAtomicSupported = 3 };
cudaError_t cudaDeviceGetP2PAttribute(int *value, enum cudaDeviceP2PAttr attr, int src, int dst);
cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned flags);
cudaError_t cudaDeviceDisablePeerAccess(int peer);
cudaError_t cudaDriverGetVersion(int *version);
enum cudaDriverEntryPointQueryResult { cudaDriverEntryPointSuccess, cudaDriverEntryPointSymbolNotFound };
enum { cudaEnableDefault };
cudaError_t cudaGetDriverEntryPointByVersion(const char *symbol, void **function, unsigned version,
                                             unsigned long long flags, enum cudaDriverEntryPointQueryResult *result);
cudaError_t cudaRuntimeGetVersion(int *version);
/* errors */
cudaError_t cudaGetLastError(void);
cudaError_t cudaPeekAtLastError(void);
const char *cudaGetErrorString(cudaError_t e);
const char *cudaGetErrorName(cudaError_t e);
/* memory */
cudaError_t cudaMemGetInfo(size_t *free_out, size_t *total);
cudaError_t cudaMalloc(void **p, size_t bytes);
cudaError_t cudaFree(void *p);
cudaError_t cudaMallocHost(void **p, size_t bytes);
cudaError_t cudaHostAlloc(void **p, size_t bytes, unsigned flags);
cudaError_t cudaFreeHost(void *p);
cudaError_t cudaHostRegister(void *p, size_t bytes, unsigned flags);
cudaError_t cudaHostUnregister(void *p);
cudaError_t cudaHostGetDevicePointer(void **dev, void *host, unsigned flags);
cudaError_t cudaPointerGetAttributes(struct cudaPointerAttributes *a, const void *p);
cudaError_t cudaMemcpy(void *dst, const void *src, size_t bytes, enum cudaMemcpyKind kind);
cudaError_t cudaMemcpyAsync(void *dst, const void *src, size_t bytes, enum cudaMemcpyKind kind, cudaStream_t s);
cudaError_t cudaMemcpy2D(void *dst, size_t dpitch, const void *src, size_t spitch, size_t width, size_t height,
                         enum cudaMemcpyKind kind);
cudaError_t cudaMemcpy2DAsync(void *dst, size_t dpitch, const void *src, size_t spitch, size_t width, size_t height,
                              enum cudaMemcpyKind kind, cudaStream_t s);
cudaError_t cudaMemcpyPeerAsync(void *dst, int dst_device, const void *src, int src_device, size_t bytes,
                                cudaStream_t s);
cudaError_t cudaMemset(void *p, int value, size_t bytes);
cudaError_t cudaMemsetAsync(void *p, int value, size_t bytes, cudaStream_t s);
/* streams and events */
cudaError_t cudaStreamCreate(cudaStream_t *s);
cudaError_t cudaStreamCreateWithFlags(cudaStream_t *s, unsigned flags);
cudaError_t cudaStreamCreateWithPriority(cudaStream_t *s, unsigned flags, int priority);
cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest);
cudaError_t cudaStreamDestroy(cudaStream_t s);
cudaError_t cudaStreamSynchronize(cudaStream_t s);
cudaError_t cudaStreamQuery(cudaStream_t s);
cudaError_t cudaStreamWaitEvent(cudaStream_t s, cudaEvent_t e, unsigned flags);
cudaError_t cudaLaunchHostFunc(cudaStream_t s, cudaHostFn_t fn, void *arg);
cudaError_t cudaEventCreate(cudaEvent_t *e);
cudaError_t cudaEventCreateWithFlags(cudaEvent_t *e, unsigned flags);
cudaError_t cudaEventDestroy(cudaEvent_t e);
cudaError_t cudaEventRecord(cudaEvent_t e, cudaStream_t s);
cudaError_t cudaEventQuery(cudaEvent_t e);
cudaError_t cudaEventSynchronize(cudaEvent_t e);
cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t from, cudaEvent_t to);
/* kernels and graphs */
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *n, const void *func, int threads, size_t smem);
cudaError_t cudaFuncSetAttribute(const void *func, enum cudaFuncAttribute attr, int value);
cudaError_t cudaStreamBeginCapture(cudaStream_t s, enum cudaStreamCaptureMode mode);
cudaError_t cudaStreamEndCapture(cudaStream_t s, cudaGraph_t *g);
cudaError_t cudaStreamIsCapturing(cudaStream_t s, enum cudaStreamCaptureStatus *status);
cudaError_t cudaThreadExchangeStreamCaptureMode(enum cudaStreamCaptureMode *mode);
cudaError_t cudaGraphInstantiate(cudaGraphExec_t *x, cudaGraph_t g, unsigned long long flags);
cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t *x, cudaGraph_t g, unsigned long long flags);
cudaError_t cudaGraphGetNodes(cudaGraph_t g, cudaGraphNode_t *nodes, size_t *n);
cudaError_t cudaGraphUpload(cudaGraphExec_t x, cudaStream_t s);
cudaError_t cudaGraphLaunch(cudaGraphExec_t x, cudaStream_t s);
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t x);
cudaError_t cudaGraphDestroy(cudaGraph_t g);
#ifdef __cplusplus
}
#endif
