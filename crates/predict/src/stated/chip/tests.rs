//! Devices that are not those of the data sheet.

use super::*;
use crate::device::machine_of;
use crate::table::Table;

fn of(device: &str, memory: &str, notes: &str) -> Chip {
    let text = format!("gpu,gpu_mem_gb,notes\n\"{device}\",{memory},\"{notes}\"\n");
    let table = Table::read("a test", &text, &[]).unwrap();
    chip(&table.rows().next().unwrap(), &machine_of(device).unwrap()).unwrap()
}

#[test]
fn stated_power_and_memory_are_read() {
    let part = of("H100-96GB(HBM2e,500W)", "96", "");
    assert_eq!((part.power, part.bandwidth), (Some(500.0), Some(HBM2E)));
    assert!((part.memory.unwrap() / 84_943_715_696.0 - 1.2).abs() < 1e-9);
    let noted = of("H100-SXM5-80GB", "96", "96 GB HBM2e at 2.4 TB/s, capped to 500 W");
    assert_eq!((noted.power, noted.bandwidth), (Some(500.0), Some(BytesPerSecond(2.4e12))));
    assert_eq!(of("H100-SXM5-80GB", "80", "moves 3 TB/s, WSD, 3 Watt; 12W-3"), Chip::default());
    assert_eq!(of("GB200-186GB", "186", ""), Chip::default());
    assert_eq!(of("H100-PCIe-80GB HBM2e", "80", ""), Chip::default());
}
