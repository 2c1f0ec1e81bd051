/* kv_cmd: `spillway kv`: inspects a folder of --kv-nvme without a server.   Thread: main. */
#pragma once

/* argv[0] is "kv". Returns an exit code. */
int kv_main(int argc, char **argv);
