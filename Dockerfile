# The program and its demo, for a user without rights:
#   docker build -t mnemo .                                   Debian 13; --build-arg SUITE=bookworm-slim for 12
#   docker run --rm -v "$PWD/out:/home/mnemo/out" mnemo       the demo: out/report.html
#   docker run --rm -it mnemo mnemo --help
# scripts/debian-root runs these steps without Docker.
ARG SUITE=trixie-slim

FROM debian:${SUITE} AS build
COPY . /mnemo
WORKDIR /mnemo
RUN scripts/setup --demo
RUN cmake --preset release -DMNEMO_TESTS=OFF -DMNEMO_TORCH_DIR=/mnemo/.deps/torch/torch -DCMAKE_INSTALL_PREFIX=/opt/mnemo
RUN cmake --build build/release
RUN cmake --install build/release
# Debian's packages with the libraries that the program needs.
RUN ldd /opt/mnemo/bin/mnemo-whole | awk '$3 ~ "^/(usr/)?lib/" {print $3}' | xargs readlink -f | xargs -n 1 basename | sed 's|^|*/|' | xargs dpkg -S | cut -d: -f1 | sort -u > /opt/mnemo/packages

FROM debian:${SUITE}
COPY --from=build /opt/mnemo /opt/mnemo
RUN apt-get update -q && xargs apt-get install -y -q --no-install-recommends < /opt/mnemo/packages && rm -rf /var/lib/apt/lists/* && ln -s /opt/mnemo/bin/mnemo /usr/local/bin/mnemo && useradd --create-home mnemo
USER mnemo
WORKDIR /home/mnemo
CMD ["mnemo", "compare", "demo", "--out", "out"]
