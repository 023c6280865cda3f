"""Communicators: threads of one process, MPI, NCCL; cuTENSORMp; which launcher started the ranks."""
