mod conformance;
mod expressions;
