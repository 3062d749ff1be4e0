//! A software RNIC: iWARP (MPA, DDP, RDMAP) over TCP, in user space.
