/* doctor_libraries: checks the GPU's driver and the libraries that are opened at run time. None is closed again: the
 * command ends soon, and unloading the large ones takes longer than all its other checks. */
#include "server/cmd/doctor.h"
#include <dirent.h>
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

enum { DRIVER_MIN = 13000 }; /* CUDA 13.0: driver 580 */

/* Is there an NVIDIA GPU: by its PCI functions (vendor 0x10de, class display or 3D), whether or not a driver is
 * loaded. */
static bool find_gpu(const struct doctor *d)
{
    char           path[600], text[40];
    struct dirent *e;
    bool           found = false;
    snprintf(path, sizeof path, "%s/sys/bus/pci/devices", d->root);
    DIR *dir = opendir(path);
    while (dir && !found && (e = readdir(dir))) {
        if (e->d_name[0] == '.' || strlen(e->d_name) > 32) continue;
        snprintf(path, sizeof path, "/sys/bus/pci/devices/%.32s/vendor", e->d_name);
        if (!doctor_line(d, path, text, sizeof text) || strcmp(text, "0x10de") != 0) continue;
        snprintf(path, sizeof path, "/sys/bus/pci/devices/%.32s/class", e->d_name);
        found = doctor_line(d, path, text, sizeof text) && !strncmp(text, "0x03", 4);
    }
    if (dir) closedir(dir);
    return found || doctor_line(d, "/proc/driver/nvidia/version", text, sizeof text);
}

static void driver(struct doctor *d)
{
    char  line[200];
    int   version = 0;
    void *lib = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    d->gpu = find_gpu(d);
    if (!lib) {
        doctor_say(
            d, d->gpu ? DOCTOR_FAIL : DOCTOR_OK, "driver",
            d->gpu
                ? "install driver 580 or newer; in a container start it with --gpus all (the NVIDIA container toolkit)"
                : "",
            "%s", d->gpu ? "an NVIDIA GPU is here, libcuda.so.1 is not" : "no NVIDIA GPU: the cpu device serves");
        return;
    }
    int (*get)(int *) = NULL;
    void *f = dlsym(lib, "cuDriverGetVersion");
    if (f) memcpy(&get, &f, sizeof get);
    if (!get || get(&version)) {
        doctor_say(d, DOCTOR_FAIL, "driver", "install the driver's own libcuda.so.1, not the toolkit's stub",
                   "libcuda.so.1 does not tell its version");
    } else {
        bool old = version < DRIVER_MIN;
        if (!doctor_line(d, "/proc/driver/nvidia/version", line, sizeof line)) *line = 0;
        doctor_say(d, old ? DOCTOR_FAIL : DOCTOR_OK, "driver", old ? "install driver 580 or newer" : "",
                   "libcuda.so.1 for CUDA %d.%d%s%.150s", version / 1000, version % 1000 / 10, *line ? ", " : "", line);
    }
}

static void libraries(struct doctor *d)
{
    static const struct {
        const char *name, *file[2], *what, *fix;
        bool        gpu; /* of use with a GPU alone */
    } row[] = {
        { "cublaslt",
          { "libcublasLt.so.13", "libcublasLt.so.12" },
          "our own slower kernel multiplies",
          "install libcublas of CUDA 13",
          true },
        { "nccl",
          { "libnccl.so.2", NULL },
          "several GPUs add by our own kernels in one machine, and cannot over several",
          "install libnccl2 (2.14 or newer)",
          true },
        { "nvml",
          { "libnvidia-ml.so.1", NULL },
          "/metrics has no line on the GPU",
          "it is part of the driver; in a container NVIDIA_DRIVER_CAPABILITIES needs utility",
          true },
        { "ucx", { "libucp.so.0", NULL }, "peers are reached over TCP alone", "install libucx0", false },
        { "zeromq", { "libzmq.so.5", NULL }, "--kv-events-config cannot be used", "install libzmq5", false },
    };
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        const char *file = row[i].file[0];
        void       *lib = dlopen(file, RTLD_NOW | RTLD_LOCAL);
        if (!lib && row[i].file[1]) lib = dlopen(file = row[i].file[1], RTLD_NOW | RTLD_LOCAL);
        if (lib)
            doctor_say(d, DOCTOR_OK, row[i].name, "", "%s", file);
        else if (row[i].gpu && !d->gpu)
            doctor_say(d, DOCTOR_OK, row[i].name, "", "%s is not here, and without a GPU not needed", row[i].file[0]);
        else
            doctor_say(d, row[i].gpu ? DOCTOR_WARN : DOCTOR_OK, row[i].name, row[i].gpu ? row[i].fix : "",
                       "%s is not here: %s", row[i].file[0], row[i].what);
    }
}

void doctor_libraries(struct doctor *d)
{
    driver(d);
    libraries(d);
}
