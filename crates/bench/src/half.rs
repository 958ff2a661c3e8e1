//! Devices that have units for one 16-bit form of numbers and not for the other.

use cost_models::machine::Machine;

/// The same machine, computing in bf16 as fast as in f16 where it has no units for bf16: models were trained
/// on such devices in f16, of which this program has no training.
pub(super) fn as_fast_in_bf16(mut machine: Machine) -> Machine {
    let device = &mut machine.device;
    if device.matrix_peak.f16.value > device.matrix_peak.bf16.value {
        device.matrix_peak.bf16 = device.matrix_peak.f16.clone();
        device.matrix_reached.bf16 = device.matrix_reached.f16.clone();
    }
    machine
}
