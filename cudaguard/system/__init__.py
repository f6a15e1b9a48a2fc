"""What is there: packages, devices, driver, toolkits, processes. Looking changes nothing."""
