# An image with Penstock, not as root. scripts/release writes what it installs into dist/ before:
#
#     scripts/release --extra kafka && docker build --tag penstock .
#     docker run --rm --volume "$PWD:/work" penstock run --target local word_count.py
#
# For programs on Spark: scripts/release --extra spark && docker build --build-arg JAVA=openjdk-21-jre-headless .
FROM debian:trixie-slim

ARG JAVA=""
RUN apt-get update \
    && apt-get install --yes --no-install-recommends ca-certificates python3 python3-venv tini ${JAVA} \
    && rm -rf /var/lib/apt/lists/*

# Hashes of all packages are in requirements.txt; the wheel is the one of this release.
COPY dist /tmp/dist
RUN python3 -m venv /opt/penstock \
    && /opt/penstock/bin/pip install --no-cache-dir --require-hashes --requirement /tmp/dist/requirements.txt \
    && /opt/penstock/bin/pip install --no-cache-dir --no-deps /tmp/dist/*.whl \
    && install -D /tmp/dist/sbom.cdx.json /usr/share/doc/penstock/sbom.cdx.json \
    && rm -rf /tmp/dist

RUN useradd --uid 10001 --create-home --shell /usr/sbin/nologin penstock \
    && install --directory --owner penstock --group penstock /work

ENV PATH="/opt/penstock/bin:${PATH}" PYTHONUNBUFFERED="1"
LABEL org.opencontainers.image.title="Penstock" \
    org.opencontainers.image.licenses="Apache-2.0"

USER 10001
WORKDIR /work
# Tini passes signals on and reaps the processes of workers: on SIGTERM a job stops as penstock.on-sigterm says.
ENTRYPOINT ["tini", "--", "penstock"]
CMD ["--help"]
