//! Devices that wrap a device.
