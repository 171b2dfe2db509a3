"""The backend of PJRT plugins: GPUs, TPUs and other accelerators.

Next: `backend` defines devices and programs, `plugins` locates plugins, `client` and `c_api` call them.
"""
