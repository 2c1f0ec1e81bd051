# Spillway in a container. Two targets: cpu (the default) and cuda, for machines with an NVIDIA driver of 580 or later.
#   docker build -t spillway .
#   docker build -t spillway:cuda --target cuda .
#   docker run --rm -p 8080:8080 -e SPILLWAY_API_KEY=change-me-change-me spillway            # the embedded model
#   docker run --rm -p 8080:8080 -e SPILLWAY_API_KEY=change-me-change-me --read-only -v /data/model:/opt/ml/model:ro \
#          -e SPILLWAY_MODEL=/opt/ml/model spillway serve
FROM debian:12-slim AS tools
# node-llhttp: Debian 12 ships llhttp's C sources in it. ca-certificates and python3: for deploy/rootfs.sh.
RUN apt-get update \
 && apt-get install -y --no-install-recommends \
      cmake ninja-build make pkg-config gcc libc6-dev binutils ca-certificates python3-minimal \
      libjansson-dev libevent-dev libssl-dev libpcre2-dev libutf8proc-dev libxxhash-dev liburing-dev libucx-dev libcurl4-openssl-dev libhiredis-dev libzmq5 node-llhttp \
 && rm -rf /var/lib/apt/lists/*
WORKDIR /src
COPY CMakeLists.txt CMakePresets.json LICENSE ./
COPY cmake cmake
COPY base base
COPY kernels kernels
COPY transfer transfer
COPY kvcache kvcache
COPY engine engine
COPY api api
COPY server server
COPY models models
COPY deploy/rootfs.sh deploy/sbom.py deploy/cuda.txt deploy/

FROM tools AS build-cpu
# The time that the list of packages bears; the same value and sources give the same tree.
ARG SOURCE_DATE_EPOCH=0
RUN cmake --preset release -DWITH_CUDA=OFF \
 && cmake --build build/release --target spillway \
 && SOURCE_DATE_EPOCH=$SOURCE_DATE_EPOCH deploy/rootfs.sh build/release/spillway /rootfs

FROM tools AS build-cuda
RUN apt-get update \
 && apt-get install -y --no-install-recommends g++ python3-pip \
 && rm -rf /var/lib/apt/lists/* \
 && pip install --no-cache-dir --no-deps --target /opt/cuda -r deploy/cuda.txt \
 && ln -s lib /opt/cuda/nvidia/cu13/lib64
ARG SOURCE_DATE_EPOCH=0
RUN cmake --preset release -DWITH_CUDA=ON -DNVCC=/opt/cuda/nvidia/cu13/bin/nvcc -DCUDAToolkit_ROOT=/opt/cuda/nvidia/cu13 \
 && cmake --build build/release --target spillway \
 && SOURCE_DATE_EPOCH=$SOURCE_DATE_EPOCH deploy/rootfs.sh build/release/spillway /rootfs \
      /opt/cuda/nvidia/cu13/lib/libcublasLt.so.13 /opt/cuda/nvidia/nccl/lib/libnccl.so.2

# What both images say; no file yet. There is no shell and no init: the server is process 1 and gets SIGTERM itself.
FROM scratch AS image
LABEL org.opencontainers.image.title="spillway" \
      org.opencontainers.image.description="An LLM inference server in C" \
      org.opencontainers.image.licenses="Apache-2.0" \
      com.amazonaws.sagemaker.capabilities.accept-bind-to-port="true"
ENV PATH=/usr/local/bin
# The default is loopback, which nobody outside the container could reach.
ENV SPILLWAY_HOST=0.0.0.0
# For NVIDIA's container runtime: all GPUs that the container is given, and the driver's libraries for computing.
ENV NVIDIA_VISIBLE_DEVICES=all NVIDIA_DRIVER_CAPABILITIES=compute,utility
# Numeric, so that runAsNonRoot can be verified without the image's passwd. Any other user works too.
USER 10001:10001
EXPOSE 8080
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=3s --start-period=120s --retries=3 CMD ["/usr/local/bin/spillway", "--healthcheck"]
ENTRYPOINT ["/usr/local/bin/spillway"]

FROM image AS cuda
COPY --from=build-cuda /rootfs/ /

FROM image AS cpu
COPY --from=build-cpu /rootfs/ /
