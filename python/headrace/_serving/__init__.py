# SPDX-License-Identifier: Apache-2.0
"""One KV store for the processes of a host: its server, and the clients of that."""
