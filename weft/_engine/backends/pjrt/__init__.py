"""The backend of PJRT plugins: GPUs, TPUs and other accelerators.

Next: `backend` has the devices and programs, `plugins` finds plugins, `client` and `c_api` call them.
"""
