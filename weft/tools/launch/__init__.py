"""`weft launch`: the processes of one program, on this machine and others.

`job` starts and watches them; `local_host` and `remote_host` run them, through `agent` on other
machines; `ssh_hosts` and `node_hosts` find those; `rank_output` prints what ranks write.
"""
