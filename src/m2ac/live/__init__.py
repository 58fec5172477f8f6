"""Learning beside a control loop that is not Gymnasium's: the loop acts and tells, another process learns."""
