export { default } from "./uPlot.js";
