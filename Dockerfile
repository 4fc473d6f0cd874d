# The engine and the command line, without Python:
#
#	docker build -t stoker .
#	docker run --rm -v /data:/data:ro stoker inspect /data/train
#
# The engine is static, so the second stage needs no library.
FROM golang:1.26-bookworm AS build
RUN apt-get update -q && apt-get install -y -q --no-install-recommends libjpeg-dev libwebp-dev && rm -rf /var/lib/apt/lists/*
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
RUN bash tools/setup.sh wheel && make engine && mkdir /cache

FROM scratch
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/
COPY --from=build /src/LICENSE /src/NOTICE /usr/share/doc/stoker/
COPY --from=build --chown=65534:65534 /cache /cache
COPY --from=build /src/build/stoker /usr/bin/stoker
USER 65534:65534
# Indexes and profiles: mount a volume here to keep them.
ENV STOKER_CACHE=/cache
ENTRYPOINT ["/usr/bin/stoker"]
