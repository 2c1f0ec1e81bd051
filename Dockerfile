# Spillway in a container:
#   docker build -t spillway .
#   docker run --rm -p 8080:8080 -e SPILLWAY_API_KEY=change-me spillway            # the embedded model
#   docker run --rm -p 8080:8080 -e SPILLWAY_API_KEY=change-me -v /data/model:/opt/ml/model:ro -e SPILLWAY_MODEL=/opt/ml/model spillway serve
FROM debian:12-slim AS build
# node-llhttp: Debian 12 ships llhttp's C sources in it.
RUN apt-get update \
 && apt-get install -y --no-install-recommends \
      cmake ninja-build pkg-config gcc libc6-dev binutils \
      libjansson-dev libevent-dev libssl-dev libpcre2-dev libutf8proc-dev libxxhash-dev liburing-dev libcurl4-openssl-dev node-llhttp \
 && rm -rf /var/lib/apt/lists/*
WORKDIR /src
COPY CMakeLists.txt CMakePresets.json ./
COPY base base
COPY kernels kernels
COPY transfer transfer
COPY kvcache kvcache
COPY engine engine
COPY api api
COPY server server
COPY models models
RUN cmake --preset release && cmake --build build/release --target spillway && strip build/release/spillway

FROM debian:12-slim
# Only what the binary links. ca-certificates: peers and stores that are named by https.
RUN apt-get update \
 && apt-get install -y --no-install-recommends \
      libjansson4 libevent-2.1-7 libssl3 libpcre2-8-0 \
      libutf8proc2 libxxhash0 liburing2 libcurl4 ca-certificates \
 && rm -rf /var/lib/apt/lists/* \
 && useradd --system --uid 10001 --no-create-home --home-dir /nonexistent --shell /usr/sbin/nologin spillway
COPY --from=build /src/build/release/spillway /usr/local/bin/spillway
COPY LICENSE /usr/share/doc/spillway/LICENSE
LABEL org.opencontainers.image.title="spillway" \
      org.opencontainers.image.licenses="Apache-2.0"
# Numeric, so that runAsNonRoot can be verified without the image's passwd.
USER 10001:10001
# The default is loopback, which nobody outside the container could reach.
ENV SPILLWAY_HOST=0.0.0.0
EXPOSE 8080
# No shell and no init in between: the server is process 1 and gets SIGTERM itself.
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=3s --start-period=120s --retries=3 CMD ["/usr/local/bin/spillway", "--healthcheck"]
ENTRYPOINT ["/usr/local/bin/spillway"]
