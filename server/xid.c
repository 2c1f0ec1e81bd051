#include "server/xid.h"
#include <stddef.h>

static const struct xid xids[] = {
    { 13, XID_ASK, "fault of a program" },
    { 31, XID_ASK, "memory fault of a program" },
    { 43, XID_ASK, "a channel was stopped" },
    { 45, XID_ASK, "a channel was cleaned up" },
    { 48, XID_BROKEN, "uncorrectable memory error: replace the GPU if it comes again" },
    { 63, XID_LOG, "a row of memory will be remapped: reset the GPU at the next maintenance" },
    { 64, XID_DRAIN, "a row could not be remapped: replace the GPU" },
    { 74, XID_LINK, "NVLink error: ranks on this GPU cannot be trusted" },
    { 79, XID_BROKEN, "the GPU fell off the bus: replace the machine" },
    { 92, XID_LOG, "many corrected memory errors" },
    { 94, XID_RESTART, "contained memory error: the process that was hit must be started again" },
    { 95, XID_BROKEN, "uncontained memory error: the GPU needs a reset" },
    { 119, XID_BROKEN, "its system processor does not answer" },
    { 120, XID_BROKEN, "its system processor failed" },
    { 154, XID_LOG, "the driver names a recovery action" },
    { 160, XID_LOG, "memory was marked for repair" },
    { 171, XID_LOG, "more about an uncorrectable error of its DRAM" },
    { 172, XID_LOG, "more about an uncorrectable error of its SRAM" },
};
static const struct xid unknown = { 0, XID_LOG, "see NVIDIA's list of XIDs" };

const struct xid *xid_find(uint64_t number)
{
    for (size_t i = 0; i < sizeof xids / sizeof *xids; i++)
        if (xids[i].number == number) return &xids[i];
    return &unknown;
}
